"""From a job and a machine to times: tables, arrays and the run."""
