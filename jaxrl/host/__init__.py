"""What runs on the host: training loops, run folders, pictures, exports, commands. Pure code never imports it."""
