"""The page's style sheet: light, calm, for screens of any width and for paper."""

STYLE = """
:root { --ink: #1c1f23; --soft: #5a6169; --rule: #dfe3e8; --wash: #f6f7f9;
  --accent: #0072b2; --warn: #a34700; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0; color: var(--ink); background: #fff; line-height: 1.55;
  font: 17px/1.55 "Source Serif 4", "Iowan Old Style", Charter, Georgia, "Liberation Serif", serif; }
main, header, nav, footer { max-width: 64rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2.5rem; }
h1, h2, nav, th, .switch, figcaption, .caption, footer, .note { font-family: system-ui, "Segoe UI", Roboto,
  "Liberation Sans", sans-serif; }
h1 { font-size: 1.75rem; line-height: 1.2; letter-spacing: -.01em; margin: 0 0 1rem;
  overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 3rem 0 .75rem; padding-top: 1rem; border-top: 1px solid var(--rule); }
p, ul { max-width: 46rem; overflow-wrap: anywhere; }
ul { padding-left: 1.2rem; }
li { margin: .35rem 0; overflow-wrap: anywhere; }
.note { color: var(--soft); font-size: .86rem; }
.behind { border-left: 3px solid var(--warn); padding-left: .9rem; margin-left: 0; }
ul.behind { padding-left: 2rem; margin-top: 0; padding-top: .4rem; }
p.behind { font-weight: 600; margin-bottom: 0; }
nav ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; font-size: .9rem; }
nav li { margin: 0; }
a { color: var(--accent); text-decoration-thickness: 1px; text-underline-offset: 2px; }
.pictures { display: grid; gap: 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 1rem 0; }
figure img { display: block; width: 100%; max-width: 46rem; height: auto; }
figcaption, .caption { color: var(--soft); font-size: .84rem; line-height: 1.45; text-align: left; }
figcaption { max-width: 42rem; margin-top: .35rem; }
.caption { margin: 0 0 .4rem; }
.table { margin: 1.25rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums;
  font-family: system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
th, td { padding: .3rem .8rem .3rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--rule); }
th { font-weight: 600; border-bottom: 1.5px solid var(--soft); vertical-align: bottom; }
td { white-space: nowrap; }
td:last-child:not(.number) { white-space: normal; min-width: 14rem; }
td.number, th.number { text-align: right; }
#published { position: fixed; top: 0; opacity: 0; }
.bar { position: sticky; top: .5rem; z-index: 1; max-width: 64rem; margin: 0 auto; padding: 0 1.25rem;
  text-align: right; pointer-events: none; }
.switch { display: inline-block; pointer-events: auto; padding: .35rem .8rem .35rem .7rem;
  font-size: .9rem;
  border: 1px solid var(--rule); border-radius: 1rem; background: var(--wash); cursor: pointer; }
.switch::before { content: "\\2610"; margin-right: .5rem; }
#published:checked ~ .bar .switch::before { content: "\\2611"; color: var(--accent); }
#published:focus-visible ~ .bar .switch { outline: 2px solid var(--accent); outline-offset: 2px; }
.paper { display: none; }
#published:checked ~ main .paper { display: block; }
#published:checked ~ main .ours { display: none; }
footer { color: var(--soft); font-size: .82rem; padding-top: 2rem; padding-bottom: 3rem; }
details { margin: 1rem 0; }
summary { cursor: pointer; color: var(--soft); font: .9rem system-ui, "Liberation Sans", sans-serif; }
@media (max-width: 36rem) {
  body { font-size: 16px; } h1 { font-size: 1.4rem; } header { padding-top: 1.5rem; }
}
@media print {
  body { font-size: 10.5pt; } nav, .switch { display: none; }
  main, header, footer { max-width: none; padding: 0; }
  details::details-content { content-visibility: visible; display: block; }
  figure, tr { break-inside: avoid; } h2 { break-after: avoid; margin-top: 1.5rem; }
  .pictures { grid-template-columns: 1fr 1fr; } .scroll { overflow: visible; } table { font-size: 7.5pt; }
  th, td { padding-right: .4rem; } td, td:last-child:not(.number) { white-space: normal; min-width: 0; }
  a { color: inherit; text-decoration: none; }
}
"""
