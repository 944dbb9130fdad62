"""scripts/site makes one site of all pages and the API, in which every link leads somewhere, pages and functions are found by the search, and,
if Chromium is here, its menu appears and its pictures fit. Skipped without Doxygen. Usage: test_site.py SOURCE_ROOT"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.path.abspath(sys.argv[1])
LIMIT_S = 300


def site_of(tree, out):
    return subprocess.run([os.path.join(tree, "scripts", "site"), out], check=False, capture_output=True, text=True, timeout=LIMIT_S)


def every_page_and_header_is_found(out):
    found = ""
    for path in glob.glob(os.path.join(out, "search", "*.js")):
        with open(path, encoding="utf-8") as file:
            found += file.read()
    for wanted in ("Your own data", "Coming from torchrun", "Cheat sheet", "Troubleshooting", "cddp_group_create", "cddp_model_open"):
        assert wanted in found, f"the search does not find {wanted}"


def a_browser_shows_it(out, browser):
    said = subprocess.run([browser, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={out}/.profile", "--window-size=1000,900",
                           "--virtual-time-budget=5000", "--dump-dom", f"file://{out}/probe.html"],
                          check=False, capture_output=True, text=True, timeout=LIMIT_S).stdout
    seen = re.search(r"menu (\d+) pictures (\d+) wide (\d+)", said)
    assert seen, f"the page did not run: {said[-500:]}"
    menu, pictures, wide = map(int, seen.groups())
    assert menu > 20 and pictures >= 2 and wide == 0, f"{menu} entries of the menu, {pictures} pictures, {wide} wider than the page"


def probe(out):
    """The first page, which at its end says in its title what a reader would see."""
    with open(os.path.join(out, "index.html"), encoding="utf-8") as file:
        text = file.read()
    script = """<script>setTimeout(function () {
      const pictures = [...document.querySelectorAll('div.contents img, div.contents object')].filter((image) => image.clientHeight > 50);
      const room = document.querySelector('div.contents').clientWidth;
      document.title = 'menu ' + document.querySelectorAll('#nav-tree li').length + ' pictures ' + pictures.length +
        ' wide ' + pictures.filter((image) => image.clientWidth > room).length;
    }, 2000);</script></body>"""
    with open(os.path.join(out, "probe.html"), "w", encoding="utf-8") as file:
        file.write(text.replace("</body>", script))


def a_broken_link_is_an_error(work):
    tree = os.path.join(work, "tree")
    for name in ("scripts/site", "doc", "include", "examples", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        to = os.path.join(tree, name)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        (shutil.copytree if os.path.isdir(os.path.join(SOURCE, name)) else shutil.copy)(os.path.join(SOURCE, name), to)
    with open(os.path.join(tree, "doc", "words.md"), "a", encoding="utf-8") as file:
        file.write("\nSee [the sea](cluster.md#the-sea).\n")
    said = site_of(tree, os.path.join(work, "broken"))
    assert said.returncode == 1 and "the_sea" in said.stderr, f"status {said.returncode}: {said.stderr}"


def main():
    if shutil.which("doxygen") is None:
        print("there is no doxygen")
        return 77
    with tempfile.TemporaryDirectory() as work:
        out = os.path.join(work, "site")
        said = site_of(SOURCE, out)
        assert said.returncode == 0, said.stderr
        every_page_and_header_is_found(out)
        a_broken_link_is_an_error(work)
        browser = shutil.which("chromium") or shutil.which("chromium-browser")
        if browser is None:
            print("SKIPPED: there is no Chromium to look at it")
            return 0
        probe(out)
        a_browser_shows_it(out, browser)
    return 0


sys.exit(main())
