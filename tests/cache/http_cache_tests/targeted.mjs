// Targeted fields (RFC 9213), in the form of http-cache-tests: each test sends two requests for one URL, and says whether the second one may be answered with what the
// first one got.

const FOR_ALL = ['CDN-Cache-Control', 'max-age=3600']
const cdn = value => ['CDN-Cache-Control', value]
const weir = value => ['Weir-Cache-Control', value]
const cc = value => ['Cache-Control', value]
const expires = seconds => ['Expires', seconds]

const reused = [
  ['alone', FOR_ALL],
  ['own', weir('max-age=3600')],
  ['huge', cdn('max-age=99999999999')],
  ['extensions', cdn('foo=1;x, max-age=3600;y, bar=(a "b")')],
  ['against-no-store', FOR_ALL, cc('no-store')],
  ['against-private', FOR_ALL, cc('private')],
  ['against-short', FOR_ALL, cc('max-age=1')],
  ['against-expired', FOR_ALL, expires(-10000), ['Date', 0]],
  ['own-first', weir('max-age=3600'), cdn('no-store')],
  ['own-invalid', weir('&&'), FOR_ALL],
  ['invalid-falls-back', cdn('no-store, &&'), cc('max-age=3600')],
  ['empty-falls-back', cdn(''), cc('max-age=3600')]
]

const passed = [
  ['short', cdn('max-age=1'), cc('max-age=3600')],
  ['zero', cdn('max-age=0'), expires(10000), ['Date', 0]],
  ['negative', cdn('max-age=-3600'), cc('max-age=3600')],
  ['aged', FOR_ALL, ['Age', '7200'], ['Date', 0]],
  ['no-store', cdn('no-store'), cc('max-age=3600')],
  ['private', cdn('private'), cc('max-age=3600')],
  ['no-cache', cdn('no-cache'), cc('max-age=3600'), expires(10000)],
  ['second-line', FOR_ALL, cdn('no-store')],
  ['own-forbids', weir('no-store'), FOR_ALL],
  ['invalid', cdn('max-age=3600, &&'), cc('no-store')],
  ['string', cdn('max-age="3600"'), cc('no-store')],
  ['spaces', cdn('max-age = 3600'), cc('no-store')],
  ['upper-case', cdn('MAX-AGE=3600'), cc('no-store')],
  ['cookie', FOR_ALL, ['Set-Cookie', 'a=b']]
]

const pair = type => ([id, ...fields]) => ({
  id: `targeted-${id}`,
  name: `${id} is ${type}`,
  requests: [
    { response_headers: fields.map(([name, value]) => [name, value, false]), setup: true, pause_after: true },
    { expected_type: type }
  ]
})

export default {
  id: 'targeted',
  name: 'Targeted fields',
  tests: [
    ...reused.map(pair('cached')),
    ...passed.map(pair('not_cached')),
    {
      id: 'targeted-for-others',
      name: 'CDN-Cache-Control reaches caches that follow',
      requests: [{
        response_headers: [[...FOR_ALL, false]],
        expected_response_headers: [FOR_ALL]
      }]
    },
    {
      id: 'targeted-for-weir',
      name: 'Weir-Cache-Control reaches nobody',
      requests: [{
        response_headers: [[...weir('max-age=3600'), false]],
        expected_response_headers_missing: ['Weir-Cache-Control']
      }]
    }
  ]
}
