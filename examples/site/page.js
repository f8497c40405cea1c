// The two cards that move: a burst of slow requests, and a stream of events.
'use strict';

const at = (id) => document.getElementById(id);

async function burst() {
  const count = 12;
  at('burst').disabled = true;
  at('bars').replaceChildren(...Array.from({ length: count }, () => document.createElement('li')));
  const began = performance.now();
  let served = 0;
  await Promise.all([...at('bars').children].map(async (bar, number) => {
    const response = await fetch(`/slow.php?ms=500&n=${number}`, { cache: 'no-store' });
    await response.text();
    bar.style.setProperty('--share', Math.min(1, (performance.now() - began) / 6000));
    bar.title = `${Math.round(performance.now() - began)} ms`;
    served += response.ok ? 1 : 0;
    at('burst-said').textContent = `${served} of ${count} served after ${Math.round(performance.now() - began)} ms`;
  }));
  at('burst').disabled = false;
}

function stream() {
  const source = new EventSource('/stream.php');
  at('ticks').textContent = '';
  source.onmessage = (event) => { at('ticks').textContent += `${event.data} `; };
  source.addEventListener('done', () => {
    source.close();
    document.body.dataset.stream = 'done';
  });
  source.onerror = () => source.close();
}

at('burst').addEventListener('click', burst);
at('again').addEventListener('click', stream);
stream();
