"""The page "Graph maintenance" of the Airflow UI: rendered on the server, read only, no build step.

docs/reference/page.md describes it for its readers.
"""
