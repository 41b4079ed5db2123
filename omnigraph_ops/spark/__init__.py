"""The Spark application: heavy data paths as one submit. Only this package imports pyspark."""
