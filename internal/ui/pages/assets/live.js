// Keeps a page current: follows the stream of its cluster and, when something changed,
// fetches the page again and changes what differs, so that focus, scroll positions and
// what was typed stay. One visible tab of a browser has the stream and passes its
// messages on to the others (browsers open six connections per host); hidden tabs
// have none.
'use strict';
(() => {
  const body = document.body, $ = id => document.getElementById(id);
  // The pause between two fetches, in ms, is longer where pages take longer: an event follows
  // its cause within half a second.
  let took = 0;
  const least = () => Math.min(900, Math.max(150, 2 * took));
  let generation = body.dataset.generation, connected = null, lost = 0, why = '';
  let timer = 0, fetching = false, wanted = false, last = 0, failures = 0;

  const pad = n => String(n).padStart(2, '0');
  const clock = t => `${t.getUTCFullYear()}-${pad(t.getUTCMonth() + 1)}-${pad(t.getUTCDate())} ${pad(t.getUTCHours())}:${pad(t.getUTCMinutes())}:${pad(t.getUTCSeconds())} UTC`;
  const age = ms => {
    const s = Math.max(0, Math.floor(ms / 1000)), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
    return d ? `${d}d ${h % 24}h` : h ? `${h}h ${m % 60}m` : m ? `${m}m ${s % 60}s` : `${s}s`;
  };
  const setText = (e, text) => { if (e && e.textContent !== text) e.textContent = text; };

  // The clocks of the page.
  let asOf = $('asof') ? Date.parse($('asof').dateTime) : 0;
  const stale = () => $('asof') && 'stale' in $('asof').dataset;
  const skew = asOf && !stale() ? Date.now() - asOf : 0; // this clock and the server's may differ
  const now = () => Date.now() - skew;
  const tick = () => {
    for (const t of document.querySelectorAll('time[data-age]')) setText(t, age(now() - Date.parse(t.dateTime)));
    const at = $('asof'), dot = $('live');
    if (!at) return;
    if (connected && !stale()) asOf = Math.max(asOf, now());
    const old = now() - asOf;
    setText(at, clock(new Date(asOf)) + (old > 2000 ? `, ${age(old)} ago` : ''));
    dot.className = 'dot' + (connected ? stale() ? ' lost' : ' live' : connected === false ? ' lost' : '');
    const banner = $('connection');
    banner.hidden = !(connected === false && Date.now() - lost > 1500);
    if (!banner.hidden) setText(banner, why || `The connection to jorc is lost. This page shows what was known ${age(old)} ago; it continues by itself.`);
  };

  // morph makes an element like another one. An element that has an id stays the same one.
  const morph = (old, next) => {
    const own = a => a.name === 'open' || a.name === 'hidden' && old.matches('.copy'); // the viewer's, and the script's
    for (const a of [...old.attributes]) if (!own(a) && !next.hasAttribute(a.name)) old.removeAttribute(a.name);
    for (const a of next.attributes) if (!own(a) && old.getAttribute(a.name) !== a.value) old.setAttribute(a.name, a.value);
    let at = old.firstChild;
    for (const n of [...next.childNodes]) {
      let match = null;
      if (n.id) {
        match = document.getElementById(n.id);
        if (match && match.parentNode !== old) match = null;
      } else if (at && at.nodeType === n.nodeType && at.nodeName === n.nodeName && !at.id) match = at;
      if (!match) {
        const added = document.importNode(n, true);
        if (n.id && n.nodeName === 'TR') added.classList.add('fresh');
        old.insertBefore(added, at);
        continue;
      }
      if (match === at) at = at.nextSibling; else old.insertBefore(match, at);
      if (n.nodeType !== Node.ELEMENT_NODE) {
        if (match.nodeValue !== n.nodeValue) match.nodeValue = n.nodeValue;
      } else if (match.nodeName !== n.nodeName) match.replaceWith(document.importNode(n, true));
      else if (!match.isEqualNode(n)) morph(match, n);
    }
    while (at) { const after = at.nextSibling; at.remove(); at = after; }
  };

  const refresh = async () => {
    timer = 0;
    if (document.hidden) { wanted = true; return; }
    if (fetching) { wanted = true; return; }
    fetching = true; wanted = false; last = Date.now();
    try {
      const answer = await fetch(location.href, {headers: {'Jorc-Refresh': '1'}, credentials: 'same-origin', cache: 'no-store'});
      if (answer.status === 401 || answer.status === 403) return ended();
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
      if (!page.getElementById('main') || answer.status >= 500) throw new Error(answer.status);
      failures = 0;
      generation = page.body.dataset.generation;
      for (const id of ['main', 'menu']) morph($(id), page.getElementById(id));
      if ($('asof')) asOf = Date.parse($('asof').dateTime);
      prepare(); tick();
    } catch (e) {
      failures++; wanted = true;
    } finally {
      fetching = false; took = Date.now() - last;
      if (wanted) schedule();
    }
  };
  const schedule = () => {
    if (timer || why) return;
    const rest = failures ? Math.min(10000, 1000 * 2 ** failures) : least();
    timer = setTimeout(refresh, Math.max(0, last + rest - Date.now()));
  };

  const ended = () => {
    why = 'You are no longer logged in, or may no longer see this cluster. Reload the page to log in, or start jorc ui again.';
    lost = 0; connected = false; close(); tick();
  };

  // Messages of the stream, from this tab's connection or from the tab that has it.
  const receive = m => {
    if (why) return;
    if (m.kind === 'end') return ended();
    if (m.kind === 'lost') { if (connected !== false) lost = Date.now(); connected = false; tick(); return; }
    const healed = connected === false;
    connected = true;
    if (healed) wanted = true;
    if (m.kind === 'change' && m.generation !== generation || healed) schedule();
    tick();
  };

  const address = body.dataset.stream;
  const channel = 'BroadcastChannel' in window ? new BroadcastChannel('jorc ' + address) : null;
  let source = null, release = null, waiting = null, state = null;
  const tell = m => { state = m; receive(m); if (channel) channel.postMessage(m); };
  const open = () => {
    source = new EventSource(address);
    source.onopen = () => tell({kind: 'open'});
    source.addEventListener('change', e => tell({kind: 'change', generation: String(JSON.parse(e.data).generation)}));
    source.addEventListener('journal', () => tell({kind: 'change'}));
    source.addEventListener('end', () => tell({kind: 'end'}));
    source.onerror = () => {
      tell({kind: 'lost'});
      if (source && source.readyState === EventSource.CLOSED) { // it was refused: the page says why
        source = null;
        schedule();
        setTimeout(() => { if (!document.hidden && (release || !navigator.locks) && !source && !why) open(); }, 3000);
      }
    };
  };
  const close = () => {
    if (source) source.close();
    source = null;
    if (waiting) waiting.abort();
    if (release) release();
    release = waiting = null;
  };
  // begin follows the stream: by itself, or through the tab that has the lock.
  const begin = () => {
    if (!address || why) return;
    if (!navigator.locks || !channel) return open();
    if (channel) channel.postMessage({kind: 'hello'});
    waiting = new AbortController();
    navigator.locks.request('jorc ' + address, {signal: waiting.signal}, () => {
      waiting = null;
      if (document.hidden) return;
      open();
      return new Promise(done => { release = done; });
    }).catch(() => {}); // hidden before its turn
  };
  if (channel) channel.onmessage = e => {
    if (e.data.kind !== 'hello') return receive(e.data);
    if (source && state) channel.postMessage(state);
  };
  document.addEventListener('visibilitychange', () => {
    close();
    if (document.hidden) return;
    begin();
    wanted = true; last = 0;
    if (!fetching) schedule();
  });

  // Buttons that copy a command.
  const prepare = () => { for (const b of document.querySelectorAll('button.copy')) b.hidden = !navigator.clipboard; };
  document.addEventListener('click', async e => {
    const b = e.target.closest && e.target.closest('button.copy');
    if (!b) return;
    const label = b.firstChild;
    try { await navigator.clipboard.writeText(b.parentNode.querySelector('code').textContent); label.nodeValue = 'Copied'; } catch { label.nodeValue = 'Not copied'; }
    setTimeout(() => { label.nodeValue = 'Copy'; }, 2000);
  });
  const choice = $('cluster');
  if (choice) choice.addEventListener('change', () => choice.form.submit());

  prepare();
  tick();
  setInterval(tick, 1000);
  if (!document.hidden) begin();
})();
