/* html.c - owns how pages of runs look, and that what they show stays text. */
#include "report/html.h"

#include "base/utf8.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

void cddpi_html_put(FILE *out, const char *text)
{
    const char *end = text + strlen(text);

    for (const char *at = text; at < end;) {
        size_t bytes = cddpi_utf8_length(at, (size_t)(end - at));

        switch (*at) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        case '\'':
            fputs("&#39;", out);
            break;
        default:
            if (bytes == 0 ||
                (bytes == 1 && iscntrl((unsigned char)*at) != 0 && *at != '\n' && *at != '\t')) {
                fputs("\xef\xbf\xbd", out);
            } else {
                fwrite(at, 1, bytes, out);
            }
        }
        at += bytes > 0 ? bytes : 1;
    }
}

double cddpi_tick_step(double span, int most)
{
    static const double factors[] = {1, 2, 5, 10};
    double step;

    if (!(span > 0) || !isfinite(span)) {
        return 1;
    }
    step = pow(10, floor(log10(span / most)));
    for (size_t i = 0; i < 4; i++) {
        if (span / (step * factors[i]) <= most) {
            return step * factors[i];
        }
    }
    return step * 10;
}

/* Colours that people with defective colour vision tell apart (after Tableau's and Okabe & Ito's),
 * on light and dark grounds. */
static const char picture_style[] =
    ":root{--ink:#1f2933;--soft:#5f6b7a;--grid:#e3e8ee;--ground:#ffffff;"
    "--c0:#2f6db3;--c1:#d1622b;--c2:#2f8f5b;--c3:#8457aa;--c4:#a3801a;--c5:#b8476f;"
    "--forward:#4e8fd0;--backward:#f0933f;--weights:#c9a227;--wait:#d9534f;--optimizer:#55a868;--"
    "data:#9a8268;"
    "--call:#8f7cc4;--bucket:#c9bfe6}"
    "svg{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;"
    "font-size:12px;color:var(--ink)}"
    "svg text{fill:var(--ink)}svg .soft{fill:var(--soft)}svg .grid{stroke:var(--grid);fill:none}"
    "svg .axis{stroke:var(--soft);fill:none}svg .title{font-weight:600;font-size:13px}"
    "svg .line{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}"
    "svg .forward{fill:var(--forward)}svg .backward{fill:var(--backward)}"
    "svg .weights{fill:var(--weights)}"
    "svg .wait{fill:var(--wait)}svg .optimizer{fill:var(--optimizer)}svg .data{fill:var(--data)}"
    "svg .loader{fill:var(--data);opacity:.55}svg .call{fill:var(--call)}"
    "svg .bucket{fill:var(--bucket)}svg .ground{fill:var(--ground)}"
    "svg .inside{fill:#fff;font-size:11px;pointer-events:none}"
    "@media (prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#9aa7b5;--grid:#2c3642;"
    "--ground:#161b22;--c0:#6cabf0;--c1:#f0925c;--c2:#62c48d;--c3:#b594dc;--c4:#d9b95a;"
    "--c5:#e884a8;--bucket:#5b4f86}}\n";

void cddpi_html_picture_style(FILE *out)
{
    fputs(picture_style, out);
}

static const char page_style[] =
    ":root{color-scheme:light dark;--page:#f5f7fa;--card:#ffffff;--text:#1f2933;--dim:#5f6b7a;"
    "--border:#dde3ea;--accent:#2f6db3}"
    "@media (prefers-color-scheme:dark){:root{--page:#0d1117;--card:#161b22;--text:#e6eaf0;"
    "--dim:#9aa7b5;--border:#2c3642;--accent:#6cabf0}}"
    "*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--text);"
    "font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}"
    "main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}h1{font-size:24px;margin:0 0 2px;"
    "overflow-wrap:anywhere}h2{font-size:16px;margin:34px 0 10px}.dim{color:var(--dim)}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(220px,1fr));gap:12px;"
    "margin:20px 0}.tile,.card{background:var(--card);border:1px solid var(--border);"
    "border-radius:10px;padding:12px 16px}.tile b{display:block;font-size:21px;font-weight:600;"
    "font-variant-numeric:tabular-nums}.tile span{color:var(--dim);font-size:13px}"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,470px),1fr));"
    "gap:14px}.card svg{display:block;width:100%;height:auto}"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;"
    "font-variant-numeric:tabular-nums}th,td{text-align:left;padding:5px 14px 5px 0;"
    "border-bottom:1px solid var(--border);vertical-align:top}th{color:var(--dim);"
    "font-weight:500}td.n,th.n{text-align:right}tr:last-child td{border-bottom:0}"
    "pre{margin:0;font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;"
    "white-space:pre-wrap;overflow-wrap:anywhere}details{margin:0 0 10px}"
    "summary{cursor:pointer;color:var(--accent)}"
    ".swatch{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:7px}"
    "#tip{position:fixed;pointer-events:none;background:var(--card);color:var(--text);"
    "border:1px solid var(--border);border-radius:7px;padding:6px 10px;font-size:13px;"
    "box-shadow:0 3px 14px rgba(0,0,0,.18);display:none;z-index:2;white-space:nowrap}"
    "@media print{body{background:#fff}.card,.tile{break-inside:avoid}}\n";

void cddpi_html_begin(FILE *out, const char *title)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n<title>",
          out);
    cddpi_html_put(out, title);
    fputs("</title>\n<style>\n", out);
    fputs(page_style, out);
    fputs(picture_style, out);
    fputs("</style>\n</head>\n<body>\n<main>\n", out);
}

/* A curve's points stand in attributes of its line; the tooltip shows, of each curve that is not
 * hidden, the point that is nearest to the pointer. A name is only ever set as text. */
static const char script[] =
    "(function(){\n"
    "var tip=document.createElement('div');tip.id='tip';document.body.appendChild(tip);\n"
    "function place(e){var r=tip.getBoundingClientRect(),x=e.clientX+14,y=e.clientY+14;"
    "if(x+r.width>innerWidth-8)x=e.clientX-r.width-14;"
    "if(y+r.height>innerHeight-8)y=e.clientY-r.height-14;"
    "tip.style.left=x+'px';tip.style.top=y+'px';}\n"
    "function row(text,colour){var d=document.createElement('div');"
    "if(colour){var s=document.createElement('span');s.className='swatch';"
    "s.style.background=colour;d.appendChild(s);}"
    "d.appendChild(document.createTextNode(text));tip.appendChild(d);}\n"
    "function show(n){return Math.abs(n)>=1e5||(n!==0&&Math.abs(n)<1e-3)?n.toExponential(3):"
    "String(+n.toPrecision(5));}\n"
    "document.querySelectorAll('svg.chart').forEach(function(svg){\n"
    "var lines=[].slice.call(svg.querySelectorAll('polyline[data-y]')).map(function(p){"
    "return{p:p,name:p.getAttribute('data-name'),"
    "x:p.getAttribute('data-x').split(' ').map(Number),"
    "y:p.getAttribute('data-y').split(' ').map(Number),"
    "px:p.getAttribute('points').split(' ').map(function(s){return +s.split(',')[0];})};});\n"
    "var cross=svg.querySelector('.cross');\n"
    "svg.addEventListener('mousemove',function(e){\n"
    "var m=svg.getScreenCTM();if(!m||!lines.length)return;var at=(e.clientX-m.e)/m.a;\n"
    "tip.textContent='';var any=false;\n"
    "lines.forEach(function(l){if(l.p.style.display==='none'||!l.px.length)return;"
    "var best=0;for(var i=1;i<l.px.length;i++)"
    "if(Math.abs(l.px[i]-at)<Math.abs(l.px[best]-at))best=i;"
    "if(!any){row('step '+l.x[best]);if(cross){cross.setAttribute('x1',l.px[best]);"
    "cross.setAttribute('x2',l.px[best]);cross.style.display='';}any=true;}"
    "row(l.name+': '+show(l.y[best]),getComputedStyle(l.p).stroke);});\n"
    "tip.style.display=any?'block':'none';if(any)place(e);});\n"
    "svg.addEventListener('mouseleave',function(){tip.style.display='none';"
    "if(cross)cross.style.display='none';});\n"
    "svg.querySelectorAll('.key').forEach(function(k){k.style.cursor='pointer';"
    "k.addEventListener('click',function(){var "
    "p=lines[+k.getAttribute('data-curve')].p,off=p.style.display!=='none';"
    "p.style.display=off?'none':'';k.style.opacity=off?.35:1;});});\n"
    "});\n"
    "document.querySelectorAll('svg.timeline [data-tip]').forEach(function(b){\n"
    "b.addEventListener('mousemove',function(e){tip.textContent='';"
    "b.getAttribute('data-tip').split('\\n').forEach(function(t){row(t);});"
    "tip.style.display='block';place(e);});\n"
    "b.addEventListener('mouseleave',function(){tip.style.display='none';});});\n"
    "document.documentElement.setAttribute('data-ready','yes');\n"
    "})();\n";

void cddpi_html_end(FILE *out)
{
    fputs("</main>\n<script>\n", out);
    fputs(script, out);
    fputs("</script>\n</body>\n</html>\n", out);
}
