"""The main jobs: each joins the stages from files to an answer."""
