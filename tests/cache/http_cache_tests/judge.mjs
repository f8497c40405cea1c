// Runs http-cache-tests and the tests of targeted.mjs against a cache. Prints as JSON how many tests of each kind it passes, and those that it should pass
// but does not (meant.mjs has the others).
//
//   node judge.mjs PACKAGES URL
//
// Four tests of the package cannot be passed: where the origin closes the connection without an answer, they look for a field of its answer. Instead it is checked
// that the client gets an error. As the package's own page does, a test does not count as passed if one that it depends on is not. Tests that only ask what a
// cache does (kind `check`) are left out, and so are those of the package that are for browsers, or for Surrogate-Control, which weir does not have.
import { pathToFileURL } from 'node:url'
import meant from './meant.mjs'
import targeted from './targeted.mjs'

const [packages, url] = process.argv.slice(2)
const load = path => import(`${pathToFileURL(packages)}/${path}`)
const { default: theirs } = await load('http-cache-tests/tests/index.mjs')
const { testResults: results } = await load('http-cache-tests/client/test.mjs')
const { default: fetch } = await load('node-fetch/lib/index.mjs')

const isHopeless = request => request.disconnect && request.expected_type === 'not_cached'
const anError = { disconnect: true, expected_status: 502, check_body: false }
const possible = test => test.requests.some(isHopeless)
  ? { ...test, depends_on: [], requests: test.requests.map(request => isHopeless(request) ? { ...anError } : request) }
  : test
const tests = [...theirs, targeted].flatMap(suite => suite.tests
  .filter(test => !test.browser_only)
  .map(test => ({ ...possible(test), kind: suite === targeted ? 'targeted' : test.kind ?? 'required' })))
const byId = new Map(tests.map(test => [test.id, test]))
const passes = id => results[id] === true && (byId.get(id).depends_on ?? []).every(passes)

// The package's runner notes all tests that it has ever got, so each run has one of its own.
async function run (tests, atOnce) {
  const { runTests } = await load(`http-cache-tests/client/runner.mjs?${atOnce}`)
  await runTests([{ tests }], fetch, false, url, atOnce)
}

// All at once, because each waits for seconds. Between two requests some may not wait for long, which a busy machine makes them do: so those that fail
// run again, a few at once.
await run(tests, 1000)
const failed = tests.filter(test => !passes(test.id) && !(test.id in meant) && test.kind !== 'check')
failed.forEach(test => delete results[test.id])
await run(failed, 10)

const verdict = { kinds: {}, unexpected: {} }
for (const test of tests.filter(test => test.kind !== 'check')) {
  const kind = verdict.kinds[test.kind] ??= { passed: 0, of: 0 }
  kind.of++
  if (passes(test.id)) {
    kind.passed++
  } else if (!(test.id in meant)) {
    verdict.unexpected[test.id] = results[test.id] === true ? 'depends on another one' : String(results[test.id]?.[1])
  }
}
console.log(JSON.stringify(verdict))
