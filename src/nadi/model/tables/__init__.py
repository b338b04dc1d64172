"""Tables, each declared once; :mod:`nadi.model.schema` exports all of them.

``declaration`` defines what a table is, ``vocabulary`` the values of categorical columns,
``trace_tables`` the tables of traces and jobs, and ``result_tables`` those of results.
"""
