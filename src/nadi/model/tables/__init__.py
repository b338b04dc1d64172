"""Tables, each declared once; :mod:`nadi.model.schema` has all of them.

``declaration`` says what a declaration is, ``words`` which words and numbers stand in columns;
``traces`` has the tables of traces and jobs, ``results`` those that analyses and simulations give.
"""
