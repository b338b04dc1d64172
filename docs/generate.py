"""Write the pages of the documentation that come from the code: ``make docs``."""

from pathlib import Path

from nadi.cli.command_page import command_reference
from nadi.model.schema import data_model_page

DOCS = Path(__file__).parent
PAGES = {"data-model.md": data_model_page, "cli.md": command_reference}

if __name__ == "__main__":
    for name, write in PAGES.items():
        (DOCS / name).write_text(write(), encoding="utf-8")
        print(f"wrote docs/{name}")
