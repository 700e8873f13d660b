"""What quality diversity is made of: archives as pytrees, and how a genome, the weights of a policy, is evaluated."""
