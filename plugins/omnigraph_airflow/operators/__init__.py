"""One module per stage, with the stem of its module in omnigraph_ops."""
