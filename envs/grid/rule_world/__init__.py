"""XLand-MiniGrid: grids whose rules of production and goals are drawn."""
