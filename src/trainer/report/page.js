// page.js - the script of page.html, which embed_page.py puts there: draws what report_page.c has read.
'use strict';
const SVG = 'http://www.w3.org/2000/svg';
const COLOURS = 6;

// Text of strangers is only ever set as text. Control characters become U+FFFD.
function put(parent, tag, attributes = {}, text = undefined) {
  const element = tag === 'svg' || parent.namespaceURI === SVG
    ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  if (text !== undefined) {
    element.textContent = String(text).replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f]/g, '\ufffd');
  }
  parent.append(element);
  return element;
}

const byId = (id) => document.getElementById(id);
const runs = JSON.parse(byId('runs').textContent);
const one = runs.length === 1;
const number = (value) => (typeof value === 'number' ? value : NaN);
const last = (run, name) => number(run.metrics[name]?.last);
const typical = (run, name) => number(run.metrics[name]?.typical);
const brief = (value) => (Math.abs(value) >= 1e7 || (value !== 0 && Math.abs(value) < 1e-3)
  ? value.toExponential(3).replace(/\.?0+e/, 'e') : String(Number(value.toPrecision(5))));
const stepText = (value) => String(Number(value.toFixed(1))); // a point that stands for several steps has their mean

// Runs on tokens: what holds back data for evaluations is called validation there, as in the terminal.
const isText = (run) => run.metrics.eval_perplexity !== undefined || run.metrics.tokens_per_s !== undefined;
const heldBack = runs.every(isText) ? 'validation' : runs.some(isText) ? 'test or validation' : 'test';

function stateOf(run) {
  return run.end === null ? 'not ended' : run.end.stopped === true ? 'stopped early' : 'complete';
}

function putName(parent, run, index) {
  put(parent, 'span', {class: `swatch c${index % COLOURS}`});
  parent.append(run.name);
}

// The summary of a run: tiles of one, columns of several.
const NUMBERS = [
  [`${heldBack} accuracy`, (run) => 100 * last(run, 'eval_accuracy'), (value) => `${value.toFixed(2)} %`],
  [`${heldBack} loss`, (run) => last(run, 'eval_loss'), (value) => value.toFixed(4)],
  ['perplexity', (run) => last(run, 'eval_perplexity'), (value) => String(Number(value.toPrecision(4)))],
  ['training loss', (run) => last(run, 'loss'), (value) => value.toFixed(4)],
  ['tokens per second', (run) => typical(run, 'tokens_per_s'), (value) => value.toFixed(0)],
  ['samples per second', (run) => typical(run, 'samples_per_s'), (value) => value.toFixed(0)],
  ['ms per step', (run) => typical(run, 'step_ms'), (value) => value.toFixed(2)],
  ['exposed communication', (run) => 100 * typical(run, 'exposed_comm_ms') / typical(run, 'step_ms'),
    (value) => `${value.toFixed(1)} %`],
  ['peak memory, rank 0', (run) => (run.end === null ? last(run, 'peak_rss_mib') : number(run.end.peak_rss_mib)),
    (value) => `${value.toFixed(0)} MiB`],
  ['seconds in all', (run) => number(run.end?.run_seconds ?? run.end?.seconds), (value) => value.toFixed(1)],
];

const numbersOfRuns = () => NUMBERS.filter(([, read]) => runs.some((run) => Number.isFinite(read(run))));

function putHead(head) {
  document.title = one ? runs[0].name : 'cddp runs';
  put(head, 'h1', {}, one ? runs[0].name : `${runs.length} runs`);
  if (!one) {
    put(head, 'div', {class: 'dim'}, 'compared by cddp-report');
    putComparison(put(put(head, 'div', {class: 'card scroll'}), 'table'));
    return;
  }
  const steps = last(runs[0], 'step');
  put(head, 'div', {class: 'dim'},
    [runs[0].dir, ...(Number.isFinite(steps) ? [`${steps} steps`] : []), stateOf(runs[0])].join(', '));
  const tiles = put(head, 'div', {class: 'tiles'});
  for (const [title, read, show] of numbersOfRuns()) {
    const tile = put(tiles, 'div', {class: 'tile'});
    put(tile, 'b', {}, show(read(runs[0])));
    put(tile, 'span', {}, title);
  }
}

function putComparison(table) {
  const top = put(table, 'tr');
  put(top, 'th', {}, 'run');
  numbersOfRuns().forEach(([title]) => put(top, 'th', {class: 'n'}, title));
  put(top, 'th', {}, 'state');
  runs.forEach((run, index) => {
    const row = put(table, 'tr');
    putName(put(row, 'td', {class: 'run'}), run, index);
    for (const [, read, show] of numbersOfRuns()) {
      put(row, 'td', {class: 'n'}, Number.isFinite(read(run)) ? show(read(run)) : '–');
    }
    put(row, 'td', {}, stateOf(run));
  });
}

// The tooltip: values at the pointer, or where arrow keys have moved to.
const tip = byId('tip');

function showTip(x, y, lines) {
  tip.replaceChildren();
  for (const {text, swatch} of lines) {
    const line = put(tip, 'div');
    if (swatch) {
      put(line, 'span', {class: swatch});
    }
    line.append(text);
  }
  tip.hidden = false;
  const {width, height} = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, x + 14 + width > innerWidth - 8 ? x - width - 14 : x + 14)}px`;
  tip.style.top = `${Math.max(4, y + 14 + height > innerHeight - 8 ? y - height - 14 : y + 14)}px`;
}

function hideTip() {
  tip.hidden = true;
}

// At most `most` round steps, 1, 2 or 5 times a power of ten, from low to high.
function ticksOf(low, high, most, least = 0) {
  const span = high - low;
  const power = 10 ** Math.floor(Math.log10(span / most));
  const step = Math.max([1, 2, 5, 10].map((factor) => factor * power).find((size) => span / size <= most) ?? span, least);
  const first = Math.ceil(low / step);
  return Array.from({length: most + 1}, (_, i) => (first + i) * step).filter((tick) => tick <= high);
}

// `second` is a column that is drawn dashed. `names`: of both, if they are not the test and the training. `zero`: y begins at
// 0. `clip`: a few large values, such as that of the first step, are cut off, so that the others can be told apart.
const CHARTS = [
  {title: 'loss', column: 'eval_loss', second: 'loss'},
  {title: 'accuracy', column: 'eval_accuracy', second: 'accuracy'},
  {title: 'perplexity', column: 'eval_perplexity', clip: true},
  runs.every(isText) ? {title: 'throughput', unit: 'tokens per second', column: 'tokens_per_s', zero: true}
    : {title: 'throughput', unit: 'samples per second', column: 'samples_per_s', zero: true},
  {title: 'exposed communication', unit: 'ms per step', column: 'exposed_comm_ms', zero: true, clip: true},
  {title: 'time of a step', unit: 'ms', column: 'step_ms', zero: true, clip: true},
  {title: 'own time of a rank', unit: 'ms of a step, without waiting for others', column: 'slowest_rank_ms', second: 'median_rank_ms',
    names: ['slowest rank', 'median'], zero: true, clip: true},
  {title: 'peak memory of rank 0', unit: 'MiB', column: 'peak_rss_mib', zero: true},
  {title: 'slowest GPU', unit: 'MHz, the lowest clock of all ranks\' GPUs', column: 'gpu_clock_mhz', zero: true},
  {title: 'hottest GPU', unit: 'degrees Celsius', column: 'gpu_temperature_c'},
  {title: 'memory of a GPU', unit: 'MiB, the most of all ranks\' GPUs', column: 'gpu_memory_mib', zero: true},
  {title: 'learning rate', column: 'lr', zero: true},
  {title: 'norm of the gradient', column: 'grad_norm', zero: true},
];

// The generations of the one run's job, if it was restarted or has gone on with other ranks: each is a part of the band
// over the curves, coloured by its number of ranks.
const isTold = ({generations}) => generations.some(({generation, ranks}) => generation > 0 || ranks !== generations[0].ranks);
const generations = one && isTold(runs[0]) ? runs[0].generations : [];
const numbersOfRanks = [...new Set(generations.map(({ranks}) => ranks))];
const ranksText = (ranks) => (ranks === 1 ? '1 rank' : `${ranks} ranks`);
const generationText = ({generation}) => (generation === null ? 'unknown' : String(generation));

function putBand(svg, frame, x) {
  generations.forEach((each, i) => {
    const [from, to] = [each.step, generations[i + 1]?.step ?? frame.right].map((step) => (
      x(Math.max(frame.left, Math.min(step, frame.right)))));
    const text = `generation ${generationText(each)}: ${ranksText(each.ranks)} after step ${each.step}`;
    const group = put(svg, 'g', {class: `generation c${numbersOfRanks.indexOf(each.ranks) % COLOURS}`,
      'data-tip': each.reason === null ? text : `${text}\n${each.reason}`});
    put(group, 'rect', {x: from, y: 1, width: Math.max(to - from - 1, 1), height: 14, rx: 2});
    if (to - from > 60) {
      put(group, 'text', {x: (from + to) / 2, y: 12, 'text-anchor': 'middle'}, ranksText(each.ranks));
    }
  });
}

function putGenerations(card) {
  const table = put(card, 'table');
  const top = put(table, 'tr');
  [['generation', 'n'], ['ranks', 'n'], ['after step', 'n'], ['why', '']].forEach(([title, kind]) => put(top, 'th', {class: kind}, title));
  for (const each of generations) {
    const row = put(table, 'tr');
    [generationText(each), each.ranks, each.step].forEach((value) => put(row, 'td', {class: 'n'}, value));
    put(row, 'td', {}, each.reason ?? '');
  }
  return generations.length > 0;
}

function curvesOf({column, second, names: [first, other] = [heldBack, 'training']}) {
  return runs.flatMap((run, index) => [
    {name: second && one ? first : run.name, key: one ? first : run.name, group: index, dashed: false,
      data: run.metrics[column]},
    {name: one ? other : `${run.name}, ${other}`, key: one ? other : run.name, group: one ? 1 : index, dashed: true,
      data: run.metrics[second]},
  ]).filter(({data}) => data?.x.length > 0);
}

const classOf = ({group, dashed}) => `c${group % COLOURS} ${dashed ? 'dashed' : ''}`;

function frameOf(curves, {zero, clip}) {
  const [xs, ys] = ['x', 'y'].map((axis) => curves.flatMap(({data}) => data[axis]).sort((a, b) => a - b));
  const frame = {left: xs[0], right: xs[xs.length - 1], low: ys[0], high: ys[ys.length - 1], above: null};
  const usual = ys[Math.ceil(ys.length * 0.97) - 1];
  if (clip && usual > 0 && frame.high > 3 * usual) {
    frame.above = frame.high;
    frame.high = 1.2 * usual;
  }
  frame.low = zero ? Math.min(frame.low, 0) : frame.low;
  const pad = (frame.high - frame.low) * 0.05 || Math.abs(frame.high) * 0.05 || 1e-9;
  frame.low -= zero && frame.low >= 0 ? 0 : pad;
  frame.high += pad;
  if (frame.right <= frame.left) {
    frame.left -= 1;
    frame.right += 1;
  }
  return frame;
}

function putAxes(svg, frame, size, x, y, yTicks) {
  for (const tick of yTicks) {
    put(svg, 'path', {class: 'grid', d: `M${size.left} ${y(tick)}H${size.right}`});
    put(svg, 'text', {class: 'soft', x: size.left - 8, y: y(tick) + 4, 'text-anchor': 'end'}, brief(tick));
  }
  for (const tick of ticksOf(frame.left, frame.right, size.right - size.left > 300 ? 6 : 4, 1)) {
    put(svg, 'text', {class: 'soft', x: x(tick), y: size.bottom + 18, 'text-anchor': 'middle'}, tick);
  }
  put(svg, 'path', {class: 'axis', d: `M${size.left} ${size.bottom}H${size.right}`});
  put(svg, 'text', {class: 'soft', x: (size.left + size.right) / 2, y: size.bottom + 34, 'text-anchor': 'middle'}, 'step');
  if (frame.above !== null) {
    put(svg, 'text', {class: 'soft', x: size.right, y: size.top - 3, 'text-anchor': 'end'}, `▲ up to ${brief(Number(frame.above.toPrecision(3)))}`);
  }
}

function drawChart(chart) {
  const {svg, curves} = chart;
  const width = Math.max(svg.clientWidth, 260);
  const frame = frameOf(curves, chart);
  const yTicks = ticksOf(frame.low, frame.high, 6);
  const size = {left: 14 + 7 * Math.max(...yTicks.map((tick) => brief(tick).length), 2), right: width - 14,
    top: generations.length > 0 ? 32 : 16, bottom: 206};
  const x = (value) => size.left + (size.right - size.left) * (value - frame.left) / (frame.right - frame.left);
  const y = (value) => size.bottom
    - (size.bottom - size.top) * (Math.min(value, frame.high) - frame.low) / (frame.high - frame.low);
  svg.replaceChildren();
  svg.setAttribute('viewBox', `0 0 ${width} 246`);
  putAxes(svg, frame, size, x, y, yTicks);
  putBand(svg, frame, x);
  chart.cross = put(svg, 'path', {class: 'axis cross', visibility: 'hidden'});
  chart.crossAt = (step) => `M${x(step)} ${size.top}V${size.bottom}`;
  chart.stepAt = (at) => frame.left + (at - size.left) / (size.right - size.left) * (frame.right - frame.left);
  for (const curve of curves) {
    const points = curve.data.x.map((step, i) => [x(step).toFixed(1), y(curve.data.y[i]).toFixed(1)]);
    curve.drawn = put(svg, 'g', {class: classOf(curve), visibility: curve.hidden ? 'hidden' : 'visible'});
    put(curve.drawn, 'polyline', {class: 'line', 'data-name': curve.name, points: points.map((at) => at.join()).join(' ')});
    if (points.length <= 40 && !curve.dashed || points.length === 1) {
      points.forEach(([cx, cy]) => put(curve.drawn, 'circle', {cx, cy, r: 2.6}));
    }
  }
}

function nearest(values, value) {
  return values.reduce((best, other, i) => (Math.abs(other - value) < Math.abs(values[best] - value) ? i : best), 0);
}

// Show the values of all curves near `step`, and a line there.
function pointAt(chart, step, clientX, clientY) {
  const shown = chart.curves.filter((curve) => !curve.hidden);
  if (shown.length === 0) {
    return;
  }
  chart.step = shown[0].data.x[nearest(shown[0].data.x, step)];
  chart.cross.setAttribute('d', chart.crossAt(chart.step));
  chart.cross.setAttribute('visibility', 'visible');
  showTip(clientX, clientY, [{text: `step ${stepText(chart.step)}`}, ...shown.map((curve) => (
    {text: `${curve.name}: ${brief(curve.data.y[nearest(curve.data.x, step)])}`, swatch: `swatch ${classOf(curve)}`}))]);
}

function leaveChart(chart) {
  chart.cross.setAttribute('visibility', 'hidden');
  hideTip();
}

// Arrow keys move along the points of the first curve that is shown.
function moveByKey(chart, event) {
  const xs = chart.curves.find((curve) => !curve.hidden)?.data.x;
  const at = xs && nearest(xs, chart.step ?? xs[xs.length - 1]);
  const to = {ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: xs?.length - 1}[event.key];
  if (event.key === 'Escape') {
    leaveChart(chart);
  }
  if (xs === undefined || to === undefined) {
    return;
  }
  event.preventDefault();
  const {left, top} = chart.svg.getBoundingClientRect();
  pointAt(chart, xs[Math.max(0, Math.min(to, xs.length - 1))], left + 40, top);
}

// A click on a name in the legend hides its curves, or shows them again: of several runs, all curves of that run.
function putKeys(card, chart) {
  const keys = put(card, 'div', {class: 'keys'});
  for (const group of new Set(chart.curves.map((curve) => curve.group))) {
    const own = chart.curves.filter((curve) => curve.group === group);
    const key = put(keys, 'button', {type: 'button', 'aria-pressed': true, title: own[0].key});
    put(key, 'span', {class: `swatch ${classOf(own[0])}`});
    key.append(own[0].key);
    key.addEventListener('click', () => {
      const hidden = key.getAttribute('aria-pressed') === 'true';
      key.setAttribute('aria-pressed', !hidden);
      for (const curve of own) {
        curve.hidden = hidden;
        curve.drawn.setAttribute('visibility', hidden ? 'hidden' : 'visible');
      }
    });
  }
}

function putChart(parent, chart) {
  chart.curves = curvesOf(chart);
  if (chart.curves.length === 0) {
    return;
  }
  const card = put(parent, 'div', {class: 'card'});
  const head = put(card, 'div', {class: 'head'});
  put(head, 'h3', {}, chart.title);
  put(head, 'span', {class: 'dim'}, chart.unit ?? (chart.second && !one ? `${heldBack}; dashed: training` : ''));
  if (chart.curves.length > 1 || chart.second) {
    putKeys(card, chart);
  }
  chart.svg = put(card, 'svg', {class: 'chart', role: 'img', tabindex: 0, 'aria-label': `${chart.title} by step; arrow keys show values`});
  chart.svg.addEventListener('pointermove', (event) => {
    const matrix = chart.svg.getScreenCTM();
    pointAt(chart, chart.stepAt((event.clientX - matrix.e) / matrix.a), event.clientX, event.clientY);
  });
  chart.svg.addEventListener('pointerleave', () => leaveChart(chart));
  chart.svg.addEventListener('keydown', (event) => moveByKey(chart, event));
  chart.svg.addEventListener('blur', () => leaveChart(chart));
  drawChart(chart);
  let width = chart.svg.clientWidth;
  new ResizeObserver(() => {
    if (chart.svg.clientWidth !== width) {
      width = chart.svg.clientWidth;
      drawChart(chart);
    }
  }).observe(chart.svg);
}

const PARTS = [['data', 'waiting for data', 'data_ms'], ['forward', 'forward', 'forward_ms'], ['backward', 'backward', 'backward_ms'],
  ['wait', 'waiting for communication', 'exposed_comm_ms'], ['optimizer', 'optimizer', 'optimizer_ms']];

function putParts(card) {
  const rows = runs.map((run) => ({run, step: typical(run, 'step_ms'), parts: PARTS.map(([, , name]) => typical(run, name))}))
    .filter(({step}) => step > 0);
  const sumOf = ({parts}) => parts.reduce((sum, ms) => sum + (ms > 0 ? ms : 0), 0);
  const longest = Math.max(...rows.map((row) => Math.max(row.step, sumOf(row))));
  const bars = put(card, 'div', {class: 'parts', role: 'img', 'aria-label': 'parts of a step'});
  const table = put(put(card, 'div', {class: 'scroll'}), 'table');
  const top = put(table, 'tr');
  put(top, 'th', {}, one ? 'ms per step' : 'run, ms per step');
  for (const [kind, title] of PARTS) {
    put(put(top, 'th', {class: 'n'}), 'span', {class: `swatch ${kind}`}).after(title);
  }
  put(top, 'th', {class: 'n'}, 'step');
  for (const {run, step, parts} of rows) {
    put(bars, 'span', {title: run.name}, run.name);
    const bar = put(bars, 'div');
    const row = put(table, 'tr');
    put(row, 'td', {class: 'run'}, run.name);
    parts.forEach((ms, p) => {
      put(row, 'td', {class: 'n'}, Number.isFinite(ms) ? ms.toFixed(2) : '–');
      if (ms > 0) {
        const peers = PARTS[p][0] === 'wait' ? typical(run, 'peer_wait_ms') : NaN;
        const more = peers > 0 ? `\nof it for ranks that were late: ${peers.toFixed(3)} ms` : '';
        put(bar, 'i', {class: PARTS[p][0], 'data-tip': `${PARTS[p][1]}: ${ms.toFixed(3)} ms${more}`}).style.width = `${100 * ms / longest}%`;
      }
    });
    put(row, 'td', {class: 'n'}, step.toFixed(2));
  }
  return rows.length > 0;
}

// Sheets of images are drawn pixel by pixel: the page's Content-Security-Policy lets it load nothing, not even from itself.
function drawSheet(canvas, {width, height, channels, pixels}) {
  const bytes = atob(pixels);
  const image = new ImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    for (let c = 0; c < 3; c++) {
      image.data[4 * i + c] = bytes.charCodeAt(channels * i + (channels === 3 ? c : 0));
    }
    image.data[4 * i + 3] = 255;
  }
  canvas.getContext('2d').putImageData(image, 0, 0);
}

function putSheets(section) {
  for (const run of runs.filter(({sheets}) => sheets.length > 0)) {
    const grid = (one || put(section, 'h3', {}, run.name), put(section, 'div', {class: 'sheets'}));
    for (const sheet of run.sheets) {
      const figure = put(grid, 'figure', {class: 'card'});
      drawSheet(put(figure, 'canvas', {width: sheet.width, height: sheet.height, role: 'img',
        'aria-label': `images of step ${sheet.step}`}), sheet);
      put(figure, 'figcaption', {}, `step ${sheet.step}`);
    }
  }
  return section.querySelector('canvas') !== null;
}

// The latest text first; those before it fold up.
function putTexts(section) {
  for (const run of runs.filter(({texts}) => texts.length > 0)) {
    for (const [index, {step, prompt, text}] of run.texts.slice().reverse().entries()) {
      const details = put(section, 'details', index === 0 ? {open: ''} : {});
      put(details, 'summary', {}, one ? `step ${stepText(step)}` : `${run.name}, step ${stepText(step)}`);
      const pre = put(put(details, 'div', {class: 'card'}), 'pre');
      put(pre, 'b', {}, prompt);
      put(pre, 'span', {}, text);
    }
  }
  return section.querySelector('details') !== null;
}

// C has drawn the timelines. Replace the browser's tooltips by the page's, which appear at once.
function titleTimelines(section) {
  for (const figure of section.querySelectorAll('figure')) {
    const run = runs[Number(figure.dataset.run)];
    put(section, 'h2', {}, `One step of all ranks${one ? '' : `: ${run.name}`}`);
    section.append(figure);
    for (const title of figure.querySelectorAll('title')) {
      const bar = title.parentNode;
      bar.dataset.tip = title.textContent;
      bar.setAttribute('aria-label', title.textContent);
      title.remove();
    }
  }
}

const MACHINE = ['version', 'world_size', 'device', 'backend', 'host', 'threads', 'products', 'batch_size', 'accumulate', 'parameters',
  'train_samples', 'test_samples', 'seed', 'peak_tflops', 'job'];

function textOf(value) {
  return typeof value === 'string' ? value
    : typeof value === 'number' && !Number.isInteger(value) ? Number(value.toPrecision(6)) : JSON.stringify(value);
}

function putMachine(card) {
  const table = put(card, 'table');
  if (!one) {
    const top = put(table, 'tr');
    put(top, 'th');
    runs.forEach((run, index) => putName(put(top, 'th'), run, index));
  }
  for (const name of MACHINE.filter((known) => runs.some(({begin}) => begin?.[known] !== undefined))) {
    const row = put(table, 'tr');
    put(row, 'th', {scope: 'row'}, name);
    runs.forEach(({begin}) => put(row, 'td', {}, begin?.[name] === undefined ? '' : textOf(begin[name])));
  }
  return table.rows.length > (one ? 0 : 1);
}

// In which keys the runs differ, with all values.
function putDifferences(section) {
  const keys = Object.keys(runs.find(({config}) => config !== null)?.differs ?? {});
  if (one || runs.filter(({config}) => config !== null).length < 2) {
    return;
  }
  if (keys.length === 0) {
    put(section, 'p', {class: 'dim'}, 'The configurations of these runs are the same.');
    return;
  }
  const table = put(put(section, 'div', {class: 'card scroll'}), 'table', {id: 'differs'});
  const top = put(table, 'tr');
  put(top, 'th', {}, keys.length === 1 ? '1 key differs' : `${keys.length} keys differ`);
  runs.forEach((run, index) => putName(put(top, 'th'), run, index));
  for (const key of keys) {
    const row = put(table, 'tr');
    put(row, 'th', {scope: 'row'}, key);
    runs.forEach(({differs}) => put(row, 'td', {}, differs[key] ?? '–'));
  }
}

function putConfigurations(section) {
  putDifferences(section);
  for (const run of runs.filter(({config}) => config !== null)) {
    const details = put(section, 'details', one ? {open: ''} : {});
    put(details, 'summary', {}, `${run.name}/train.conf`);
    put(put(details, 'div', {class: 'card scroll'}), 'pre', {}, run.config);
  }
  return section.querySelector('details') !== null;
}

putHead(byId('head'));
byId('training').hidden = !CHARTS.some((chart) => curvesOf(chart).length > 0); // before they are drawn, as wide as there is room
const charts = byId('training').lastElementChild;
CHARTS.forEach((chart) => putChart(charts, chart));
byId('sheets').hidden = !putSheets(byId('sheets'));
byId('texts').hidden = !putTexts(byId('texts'));
byId('parts').hidden = !putParts(byId('parts').lastElementChild);
titleTimelines(byId('timelines'));
byId('generations').hidden = !putGenerations(byId('generations').lastElementChild);
byId('machine').hidden = !putMachine(byId('machine').lastElementChild);
byId('configuration').hidden = !putConfigurations(byId('configuration'));
addEventListener('pointermove', (event) => {
  const bar = event.target.closest?.('[data-tip]');
  if (bar) {
    showTip(event.clientX, event.clientY, bar.dataset.tip.split('\n').map((text) => ({text})));
  } else if (!event.target.closest?.('.chart')) {
    hideTip();
  }
});
byId('notice').remove();
document.documentElement.dataset.ready = 'yes';
