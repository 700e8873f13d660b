"""Puzzles of one board, with Jumanji's rules: 2048, Minesweeper, Snake."""
