// The search of a built site, as a reader's browser runs it: a JSON list of what is typed on standard input; on standard
// output, of each, the addresses of what is found, the best first, a list for each page. Called by tools/search.py.
import { readFileSync, readdirSync } from "node:fs"
import { join } from "node:path"
import { runInThisContext } from "node:vm"

const [SETUP, QUERY] = [0, 2] // the theme's numbers of messages
const site = process.argv[2]
const run = file => runInThisContext(readFileSync(file, "utf8"), file)

// What the worker hears and says, which begins when its file is run.
let heard, said
globalThis.self = globalThis
globalThis.addEventListener = (type, listener) => (heard = listener)
globalThis.postMessage = message => said(message)
const workers = join(site, "assets", "javascripts", "workers")
run(join(workers, readdirSync(workers).find(name => /^search\..*\.js$/.test(name))))

// The page's side, with what the site changes in it.
globalThis.window = { Worker: class { postMessage(data) { heard({ data }) } } }
run(join(site, "site", "query.js"))
const worker = new window.Worker()
const ask = (type, data) => new Promise(resolve => {
  said = resolve
  worker.postMessage({ type, data })
})

const { config, docs } = JSON.parse(readFileSync(join(site, "search", "search_index.json"), "utf8"))
await ask(SETUP, { config, docs, options: { suggest: false } })
const found = []
for (const typed of JSON.parse(readFileSync(0, "utf8"))) {
  const { data } = await ask(QUERY, typed)
  found.push(data.items.slice(0, 10).map(page => page.map(section => section.location)))
}
process.stdout.write(JSON.stringify(found))
