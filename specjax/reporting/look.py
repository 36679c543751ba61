"""Style sheet of a page, light and dark, wide and narrow; script that sorts its tables."""

from __future__ import annotations

from specjax.reporting import notebook

STYLE = f"""
:root {{ color-scheme: light dark; --ink: #1a1a1a; --soft: #4a4a4a; --ground: #ffffff;
  --raised: #f4f6f8; --line: #dfe2e6; --link: #005a8f; --best: #e4f3ec }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e8e8e8; --soft: #b4b8bd; --ground: #15181c; --raised: #20252b; --line: #31373e;
    --link: #7cc4f2; --best: #17382b }} }}
* {{ box-sizing: border-box }}
body {{ font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; color: var(--ink);
  background: var(--ground); max-width: 1216px; margin: 0 auto; padding: 1.5rem 2rem 4rem;
  overflow-wrap: anywhere }}
h1 {{ font-size: 1.7rem; line-height: 1.25; margin: 0 0 .5rem }}
h2 {{ font-size: 1.3rem; margin: 0 0 .5rem }}
h3 {{ font-size: 1rem; margin: 1.5rem 0 .3rem }}
main section {{ margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 1.5rem }}
a {{ color: var(--link) }}
code {{ font: .92em ui-monospace, "DejaVu Sans Mono", monospace; background: var(--raised);
  border-radius: 3px; padding: .05em .15em }}
.answer {{ display: grid; grid-template-columns: 19rem 1fr; gap: 0 2rem; padding: 1rem 1.2rem;
  margin: 1rem 0; background: var(--raised); border-radius: 8px }}
.answer h2 {{ font-size: 1rem; font-weight: 500; color: var(--soft); margin: 0 }}
.answer .short {{ font-size: 1.2rem; font-weight: 600; line-height: 1.35; margin: .2rem 0 0 }}
.answer code {{ background: var(--ground) }}
.answer ul {{ margin: 0; padding-left: 1.1rem }}
.answer li + li {{ margin-top: .35rem }}
nav ul {{ display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; list-style: none; padding: 0 }}
.scroll {{ overflow: auto; max-height: 40rem; margin: 1rem 0 }}
table {{ border-collapse: separate; border-spacing: 0; font-variant-numeric: tabular-nums;
  font-size: .92rem; overflow-wrap: normal }}
caption {{ text-align: left; color: var(--soft); padding-bottom: .3rem }}
caption div {{ display: inline-block; position: sticky; left: 0; max-width: calc(100vw - 2rem) }}
th, td {{ padding: .3rem .7rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; background: var(--ground) }}
thead th {{ position: sticky; top: 0; z-index: 1; vertical-align: bottom }}
th:first-child {{ text-align: left }}
tbody th {{ position: sticky; left: 0; font-weight: 500; white-space: normal;
  overflow-wrap: anywhere; min-width: 11rem }}
.best th, .best td {{ background: var(--best) }}
th button {{ all: unset; cursor: pointer; white-space: nowrap }}
th button:focus-visible {{ outline: 2px solid var(--link); outline-offset: 2px }}
th button::after {{ content: "\\2195"; opacity: .45; padding-left: .3em }}
th[aria-sort=ascending] button::after {{ content: "\\2191"; opacity: 1 }}
th[aria-sort=descending] button::after {{ content: "\\2193"; opacity: 1 }}
figure {{ margin: 1rem 0 }}
figure svg {{ display: block; width: 100%; max-width: 1152px; min-width: 44rem; height: auto }}
figure svg * {{ stroke-linejoin: round; stroke-linecap: butt }}
figure svg text {{ white-space: pre;
  font-family: "DejaVu Sans", Verdana, system-ui, sans-serif !important }}
figcaption, .note {{ color: var(--soft); font-size: .92rem; max-width: 60rem }}
.narrow {{ display: none }}
details > summary {{ cursor: pointer; color: var(--link); margin: .6rem 0 }}
.texts .note {{ margin: 0 }}
.texts {{ display: grid; gap: 0 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)) }}
.source {{ border-inline-start: 3px solid var(--line); margin: 1.5rem 0 0; padding: 0 .8rem;
  white-space: pre-wrap }}
pre {{ background: var(--raised); padding: 1rem; overflow-x: auto; font-size: .85rem }}
{notebook.STYLE}
@media (max-width: 50rem) {{
  body {{ padding: 1rem 1rem 3rem }}
  h1 {{ font-size: 1.35rem }}
  .answer {{ display: block; padding: .8rem 1rem }}
  .answer ul {{ margin-top: .6rem }}
  th, td {{ padding: .3rem .4rem }}
  tbody th {{ min-width: 8.5rem }}
  th:not([aria-sort]) button::after {{ content: none }}
  .narrow {{ display: block }} }}
"""

SORT = """
const amount = text => /^[-+]?[\\d.,]/.test(text)
  ? parseFloat(text.replaceAll(",", "")) : null;
const after = (a, b) => {
  const [x, y] = [amount(a), amount(b)];
  return x !== null && y !== null ? x - y : a.localeCompare(b, undefined, {numeric: true});
};
const sort = (table, column, title) => {
  const falling = title.ariaSort === "ascending", body = table.tBodies[0];
  const text = row => row.cells[column].textContent.trim();
  const known = [...body.rows].filter(row => text(row) !== "-");
  const unknown = [...body.rows].filter(row => text(row) === "-");
  known.sort((a, b) => falling ? after(text(b), text(a)) : after(text(a), text(b)));
  for (const other of title.parentNode.cells) other.removeAttribute("aria-sort");
  title.setAttribute("aria-sort", falling ? "descending" : "ascending");
  body.append(...known, ...unknown);
};
for (const table of document.querySelectorAll("table"))
  [...table.tHead.rows[0].cells].forEach((title, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...title.childNodes);
    button.addEventListener("click", () => sort(table, column, title));
    title.append(button);
  });
"""
"""Turns table headings into sort buttons; cells without a figure come last."""
