"""Files of jobs as ASTRA-sim reads them."""
