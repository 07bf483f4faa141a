"""`python -m testkit.reference`: writes every reference page from the code."""

from testkit.reference.pages import ROOT, pages

for page in pages():
    text = page.render()
    before = page.file.read_text() if page.file.exists() else None
    page.file.parent.mkdir(parents=True, exist_ok=True)
    page.file.write_text(text)
    print(f"{page.file.relative_to(ROOT)}: {'unchanged' if text == before else 'written'}")
