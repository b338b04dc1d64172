"""Who may write to the folders that these tests make does not depend on who runs them."""

import os

import pytest


@pytest.fixture(scope="module", autouse=True)
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)
