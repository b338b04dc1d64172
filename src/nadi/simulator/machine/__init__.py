"""What a machine is: values, and the files that say so."""
