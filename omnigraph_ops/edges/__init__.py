"""Where the outside world is touched: Lance, the object store, Spark, Java. Nothing else imports them."""
