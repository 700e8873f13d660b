"""One HTML page that needs nothing else: its style, its script, and what its parts are made with."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; media-src data:"
"""No request leaves the page, whatever is in it."""

LARGEST = 24 * 2**20
"""Bytes of a picture or a film that is taken into the page."""

MEDIA = {".gif": "image/gif", ".png": "image/png", ".jpg": "image/jpeg", ".webp": "image/webp", ".mp4": "video/mp4"}

LIGHT = """--paper:#fff;--ink:#1a202c;--soft:#5a6678;--rule:#e2e8f0;--panel:#f7f9fb;--warn:#9a3412;--warn-bg:#fff4ec;
--accent:#2b6cb0;--c0:#2b6cb0;--c1:#c05621;--c2:#2f855a;--c3:#6b46c1;--c4:#b83280;--c5:#4a5568;--c6:#0e7490;--c7:#a16207"""
DARK = """--paper:#12161d;--ink:#e6eaf0;--soft:#a3afbf;--rule:#2b3442;--panel:#1a212c;--warn:#fdba74;--warn-bg:#2a1e14;
--accent:#7ab8f5;--c0:#63b3ed;--c1:#f6ad55;--c2:#68d391;--c3:#b794f4;--c4:#f687b3;--c5:#cbd5e0;--c6:#4fd1c5;--c7:#ecc94b"""

STYLE = f"""
:root{{color-scheme:light;{LIGHT}}}
@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{DARK}}}}}
:root[data-theme=dark]{{color-scheme:dark;{DARK}}}
*{{box-sizing:border-box}}
body{{font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;color:var(--ink);background:var(--paper);
max-width:1080px;margin:0 auto;padding:1.2em 1.2em 4em}}
h1{{font-size:1.6em;margin:.2em 0}} h2{{font-size:1.3em;margin:2.2em 0 .5em;border-bottom:1px solid var(--rule)}}
h3{{font-size:1.08em;margin:1.8em 0 .4em}} h4{{font-size:1em;margin:1.3em 0 .3em}}
h5{{font-size:.95em;margin:1.1em 0 .3em}}
h1,h2,h3,h4,h5{{line-height:1.25;overflow-wrap:anywhere}}
p{{margin:.5em 0}} .soft{{color:var(--soft)}} a{{color:var(--accent)}}
header{{display:flex;justify-content:space-between;align-items:flex-start;gap:1em}}
button{{font:inherit;color:inherit;background:var(--panel);border:1px solid var(--rule);border-radius:6px;
padding:.25em .8em;cursor:pointer;white-space:nowrap}} button:focus-visible{{outline:2px solid var(--accent)}}
nav ul,.legend{{list-style:none;display:flex;flex-wrap:wrap;gap:.2em 1.2em;padding:0;margin:.4em 0}}
.legend{{font-size:.88em;color:var(--soft);gap:.1em 1em}} .legend svg{{width:22px;height:10px;margin-right:.4em}}
.scroll{{overflow-x:auto;margin:.7em 0}}
table{{border-collapse:collapse;font-variant-numeric:tabular-nums}}
td,th{{padding:.25em .9em .25em 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule)}}
th{{font-weight:600;color:var(--soft);font-size:.92em}} td,th{{white-space:nowrap}}
td.n,th.n{{text-align:right}}
tr:last-child td{{border-bottom:0}} td.wide{{white-space:normal;overflow-wrap:anywhere;min-width:16em}}
.grid2{{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(430px,100%),1fr));gap:.6em 1.6em}}
.grid2>*{{min-width:0}} figure{{margin:0 0 .8em}} figcaption{{font-weight:600;font-size:.95em}}
.plot{{position:relative}} .narrow{{max-width:600px}}
svg.chart{{width:100%;height:auto;display:block;touch-action:pan-y}}
svg text{{fill:var(--soft);font-size:12px}} svg .name{{fill:var(--ink);font-size:13px}}
svg .grid{{stroke:var(--rule);stroke-width:1;fill:none}} svg .cursor{{stroke:var(--soft);stroke-width:1;fill:none}}
.l{{fill:none;stroke-width:1.7;stroke-linejoin:round;stroke-linecap:round}} .l.thin{{stroke-width:1;opacity:.45}}
.l.bold{{stroke-width:2.4}} .l.dash{{stroke-dasharray:6 4;stroke-width:1.2}}
.l.dot{{stroke-dasharray:1 3.5;stroke-width:1.5;stroke:var(--ink)}}
.l.dots{{stroke-width:9}} .l.step{{stroke-linejoin:miter;stroke-width:1.2}}
.bar{{stroke-width:7;opacity:.28}} .mark{{stroke-width:3}} .seed{{opacity:.75}} .band{{opacity:.18}}
{"".join(f".c{i}{{stroke:var(--c{i})}}.f{i}{{fill:var(--c{i})}}" for i in range(8))}
.tip{{position:absolute;pointer-events:none;background:var(--panel);border:1px solid var(--rule);border-radius:6px;
padding:.2em .6em;font-size:.82em;line-height:1.35;white-space:nowrap;z-index:2;box-shadow:0 2px 8px #0003}}
.tip i{{display:inline-block;width:.7em;height:.7em;border-radius:50%;margin-right:.4em}}
.warn{{color:var(--warn);background:var(--warn-bg);border-radius:6px;padding:.5em .9em;margin:.6em 0}}
.warn ul{{margin:0;padding-left:1.1em}}
pre{{background:var(--panel);border:1px solid var(--rule);border-radius:6px;padding:.6em .9em;white-space:pre-wrap;
overflow-wrap:anywhere;font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}}
details{{margin:.5em 0}} summary{{cursor:pointer;color:var(--accent)}}
.media{{display:flex;flex-wrap:wrap;gap:1em}} .media figure{{margin:0}}
.media img,.media video{{max-width:100%;width:min(480px,100%);border:1px solid var(--rule);border-radius:6px;
background:#fff}}
@media (max-width:600px){{body{{padding:.8em .9em 3em}} svg text{{font-size:15px}} svg .name{{font-size:16px}}
td,th{{padding-right:.6em}}}}
@media print{{:root:root,:root[data-theme=dark]{{color-scheme:light;{LIGHT}}} button,nav{{display:none}}
body{{max-width:none;padding:0;font-size:10.5pt}} table,pre{{font-size:8.5pt}} figure,tr,pre,.warn{{break-inside:avoid}}
h2,h3,h4,h5,summary,h3+p{{break-after:avoid}} .scroll{{overflow:visible}} details .scroll{{columns:2;column-gap:2em}}
.grid2{{grid-template-columns:1fr 1fr}} td,th{{white-space:normal;padding-right:.7em}} td.wide{{min-width:0}}
td:not(.n):not(:first-child){{overflow-wrap:anywhere}}}}
"""

SCRIPT = """
const root=document.documentElement,button=document.querySelector('button');
button.hidden=false;
const dark=()=>root.dataset.theme?root.dataset.theme==='dark':matchMedia('(prefers-color-scheme: dark)').matches;
const label=()=>{button.textContent=dark()?'Light':'Dark'};
button.onclick=()=>{root.dataset.theme=dark()?'light':'dark';label()};
matchMedia('(prefers-color-scheme: dark)').addEventListener('change',label);
label();
addEventListener('beforeprint',()=>document.querySelectorAll('details').forEach(d=>{d.open=true}));
const shown=(v,k)=>{const unit=10**Math.floor(Math.log10(Math.abs(k)/10));v=Math.round(v/unit)*unit||0;
const a=Math.abs(v);return a>=1e4?Math.round(v).toLocaleString('en'):a&&a<1e-3?v.toExponential(2):
String(+v.toPrecision(4))};
const points=path=>{if(path.p)return path.p;const p=[];let x=0,y=0;
for(const m of path.getAttribute('d').matchAll(/([MLHVh])(-?[\\d.]+)(?:,(-?[\\d.]+))?/g)){
if(m[1]==='h')continue;if(m[1]==='H')x=+m[2];else if(m[1]==='V')y=+m[2];else{x=+m[2];y=+m[3]}
if(m[1]!=='H')p.push([x,y])}return path.p=p};
document.querySelectorAll('svg.chart[data-x]').forEach(svg=>{
const scale=n=>svg.dataset[n].split(' ').map(Number),[x0,kx,left]=scale('x'),[y0,ky,bottom]=scale('y');
const cursor=svg.querySelector('.cursor'),plane='plane' in svg.dataset,box=svg.viewBox.baseVal;
const lines=[...svg.querySelectorAll('path[data-name]')];let tip;
const leave=()=>{if(tip)tip.remove();tip=null;cursor.setAttribute('d','')};
svg.addEventListener('pointerleave',leave);
svg.addEventListener('pointermove',event=>{
const at=new DOMPoint(event.clientX,event.clientY).matrixTransform(svg.getScreenCTM().inverse());
let found=lines.map(line=>{let best=null,least=Infinity;
for(const q of points(line)){const d=plane?Math.hypot(q[0]-at.x,q[1]-at.y):Math.abs(q[0]-at.x);
if(d<least){least=d;best=q}}return{line,best,least}}).filter(f=>f.best&&f.least<(plane?40:30));
if(plane&&found.length)found=[found.reduce((a,b)=>b.least<a.least?b:a)];
if(!found.length)return leave();
if(!tip){tip=document.createElement('div');tip.className='tip';svg.parentNode.append(tip)}
tip.replaceChildren();
const row=(text,color)=>{const d=document.createElement('div');
if(color){const i=document.createElement('i');i.style.background=color;d.append(i)}d.append(text);tip.append(d)};
const X=q=>x0+(q[0]-left)*kx,Y=q=>y0+(bottom-q[1])*ky;
if(!plane){const near=found.reduce((a,b)=>b.least<a.least?b:a);row(shown(X(near.best),kx)+' '+svg.dataset.label);
cursor.setAttribute('d',`M${near.best[0]},24V${bottom}`)}
for(const f of found){const color=getComputedStyle(f.line).stroke;
row(f.line.dataset.name+': '+(plane?shown(X(f.best),kx)+', ':'')+shown(Y(f.best),ky),color)}
const r=svg.getBoundingClientRect(),w=tip.offsetWidth,px=(event.clientX-r.left);
tip.style.left=Math.max(0,Math.min(r.width-w,px+(px+w+20>r.width?-w-14:14)))+'px';tip.style.top='26px'})});
"""


LONG = 50
"""Letters of a cell that is wrapped."""

NUMBER = re.compile(r"-?[\d,]+(\.\d+)?(e[+-]\d+)?|nan")


def text(value: object) -> str:
    """As HTML shows it."""
    return html.escape(str(value))


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table that scrolls by itself where it is too wide. Columns with numbers only are set right, those with long
    texts are wrapped."""
    rows = [[str(cell) for cell in row] for row in rows]
    wide = [i for i in range(len(header)) if any(len(row[i]) > LONG for row in rows)]
    numeric = [
        i not in wide and bool(rows) and all(_is_number(row[i]) or row[i] in ("", "–") for row in rows)
        for i in range(len(header))
    ]

    def kind(i: int) -> str:
        return ' class="n"' if numeric[i] else ' class="wide"' if i in wide else ""

    head = "".join(f'<th scope="col"{kind(i)}>{text(cell)}</th>' for i, cell in enumerate(header))
    body = "".join(
        "<tr>" + "".join(f"<td{kind(i)}>{text(cell)}</td>" for i, cell in enumerate(row)) + "</tr>\n" for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'


def _is_number(cell: str) -> bool:
    return all(NUMBER.fullmatch(word) for word in cell.replace(", ", " ").split() if word not in ("to", "of", "%"))


def warning(notes: Sequence[str]) -> str:
    """What a reader must not miss; nothing for no notes."""
    if not notes:
        return ""
    return f'<div class="warn" role="note"><ul>{"".join(f"<li>{text(note)}</li>" for note in notes)}</ul></div>'


def folded(summary: str, content: str) -> str:
    return f"<details><summary>{text(summary)}</summary>{content}</details>"


def media(file: Path) -> str:
    """A picture or film as part of the page, or a word on why it is not."""
    if file.is_symlink() or not file.is_file():
        return f"<p class='soft'>{text(file.name)} is no file of the run folder, and is left out.</p>"
    size = file.stat().st_size
    if size > LARGEST:
        return f"<p class='soft'>{text(file.name)} has {size / 2**20:.0f} MB and is left out.</p>"
    data = f"data:{MEDIA[file.suffix.lower()]};base64,{base64.b64encode(file.read_bytes()).decode()}"
    what = text(f"{file.stem} of this run")
    shown = f'<img src="{data}" alt="{what}" loading="lazy">'
    if file.suffix.lower() == ".mp4":
        shown = f'<video src="{data}" controls loop muted playsinline aria-label="{what}"></video>'
    return f"<figure>{shown}<figcaption class='soft'>{text(file.name)}</figcaption></figure>"


def page(title: str, subtitle: str, body: str) -> str:
    """The whole page."""
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width,initial-scale=1"><title>{text(title)}</title>
<style>{STYLE}</style></head>
<body><header><div><h1>{text(title)}</h1><p class="soft">{text(subtitle)}</p></div>
<button type="button" title="Dark or light" hidden>Dark</button></header>
<main>{body}</main>
<script>{SCRIPT}</script></body></html>
"""
