"""The values that pass between stages: plans, outcomes, reports. No behaviour beyond derived fields.

Tokens and field names that the engine also prints keep the engine's spelling (`table_key`,
`manifest_version`, `drift_needs_repair`, ...); what is new stands beside them.
"""
