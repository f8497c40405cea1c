// The origin of http-cache-tests: the package's own handlers, which expect a request and a response of Node's `http`, behind HTTP, or behind records of
// FastCGI 1.0.
//
//   node origin.mjs PACKAGE http HOST PORT
//   node origin.mjs PACKAGE fastcgi SOCKET
import { chmodSync } from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import { pathToFileURL } from 'node:url'

const [folder, protocol, ...place] = process.argv.slice(2)
const handler = async name => (await import(pathToFileURL(`${folder}/server/handle-${name}.mjs`))).default
const handlers = { config: await handler('config'), test: await handler('test'), state: await handler('state') }

const [BEGIN, ABORT, END, PARAMS, STDIN, STDOUT] = [1, 2, 3, 4, 5, 6]
const LONGEST = 65528

// What a handler uses of a request.
class Request {
  constructor (params, body) {
    this.method = params.REQUEST_METHOD
    this.url = params.REQUEST_URI
    this.body = body
    this.headers = {}
    for (const [name, value] of Object.entries(params)) {
      const header = name.startsWith('HTTP_') ? name.slice(5) : ['CONTENT_TYPE', 'CONTENT_LENGTH'].find(own => own === name)
      if (header) this.headers[header.toLowerCase().replaceAll('_', '-')] = value
    }
  }

  on (event, listener) {
    if (event === 'data') listener(this.body)
    if (event === 'end') listener()
  }
}

// What a handler uses of a response.
class Response {
  statusCode = 200
  fields = new Map()
  text = ''

  constructor (send, destroy) {
    this.send = send
    this.socket = { destroy }
  }

  setHeader (name, value) {
    this.fields.set(name.toLowerCase(), [name, value])
  }

  getHeader (name) {
    return this.fields.get(name.toLowerCase())?.[1]
  }

  hasHeader (name) {
    return this.fields.has(name.toLowerCase())
  }

  getHeaders () {
    return Object.fromEntries([...this.fields].map(([name, [, value]]) => [name, value]))
  }

  writeHead (status, fields) {
    this.statusCode = status
    Object.entries(fields).forEach(([name, value]) => this.setHeader(name, value))
  }

  write (text) {
    this.text += text
  }

  end (text = '') {
    const lines = [`Status: ${this.statusCode}`]
    for (const [name, values] of this.fields.values()) {
      [values].flat().forEach(value => lines.push(`${name}: ${value}`))
    }
    const head = Buffer.from(lines.join('\r\n') + '\r\n\r\n', 'latin1')
    this.send(Buffer.concat([head, Buffer.from(this.text + text)]))
  }
}

function record (type, id, content) {
  const head = Buffer.from([1, type, id >> 8, id & 255, content.length >> 8, content.length & 255, 0, 0])
  return Buffer.concat([head, content])
}

function pairs (bytes) {
  const found = {}
  let at = 0
  const length = () => {
    const long = bytes[at] > 127
    const length = long ? bytes.readUInt32BE(at) & 0x7fffffff : bytes[at]
    at += long ? 4 : 1
    return length
  }
  const text = length => bytes.toString('latin1', at, at += length)
  while (at < bytes.length) {
    const [name, value] = [length(), length()]
    found[text(name)] = text(value)
  }
  return found
}

function answer (connection, id, request) {
  const params = pairs(Buffer.concat(request.params))
  const send = content => {
    for (let at = 0; at < content.length; at += LONGEST) {
      connection.write(record(STDOUT, id, content.subarray(at, at + LONGEST)))
    }
    connection.write(Buffer.concat([record(STDOUT, id, Buffer.alloc(0)), record(END, id, Buffer.alloc(8))]))
    if (!request.isKept) connection.end()
  }
  const response = new Response(send, () => connection.destroy())
  handle(new Request(params, Buffer.concat(request.body).toString()), response)
}

function handle (request, response) {
  const [, kind, ...rest] = new URL(request.url, 'http://origin').pathname.split('/')
  const handler = handlers[kind]
  if (handler) {
    handler(rest, request, response)
  } else {
    response.statusCode = 404
    response.end()
  }
}

const fastcgi = net.createServer(connection => {
  const requests = new Map()
  let bytes = Buffer.alloc(0)
  connection.on('error', () => {})
  connection.on('data', data => {
    bytes = Buffer.concat([bytes, data])
    while (bytes.length >= 8) {
      const [type, id, length] = [bytes[1], bytes.readUInt16BE(2), bytes.readUInt16BE(4)]
      const whole = 8 + length + bytes[6]
      if (bytes.length < whole) return
      const content = bytes.subarray(8, 8 + length)
      bytes = bytes.subarray(whole)
      const request = requests.get(id)
      if (type === BEGIN) {
        requests.set(id, { params: [], body: [], isKept: content[2] & 1 })
      } else if (type === PARAMS) {
        request.params.push(content)
      } else if (type === STDIN && length > 0) {
        request.body.push(content)
      } else if (type === STDIN) {
        requests.delete(id)
        answer(connection, id, request)
      } else if (type === ABORT) {
        connection.destroy()
      }
    }
  })
})

if (protocol === 'http') {
  http.createServer(handle).listen(place[1], place[0])
} else {
  fastcgi.listen(place[0], () => chmodSync(place[0], 0o666))
}
