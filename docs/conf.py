"""Settings of the site, which ``make docs`` builds with Sphinx."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from functrans import __version__ as release

project = "functrans"
author = "the functrans developers"
extensions = [
    "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "sphinx_copybutton",
    "site_extension",
]
exclude_patterns = ["_build"]
templates_path: list[str] = []
nitpicky = False

html_theme = "furo"
html_title = f"functrans {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]
# The prompts of sessions are neither selected nor copied.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries = False  # each page of the reference begins with a table of its names
