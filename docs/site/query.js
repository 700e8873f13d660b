/* What is typed into the search, before the theme's worker reads it as "any word that begins so". A whole word counts more
   than one that only begins so (`wind`, not `window`), and words that say nothing (`how to`) are left out. Queries with
   signs of the search's own language ("a phrase", +word, -word, title:word) stay as they are. tools/search.py asks
   through this, too. */
{
  const QUERY = 2  // the theme's number for such a message
  const FILLERS = new Set(
    ("a an and are as at be but by can cannot cant could do does doing for from get have how i if in into is it its me need not of " +
      "on or please should so that the their them there this to use using want was we what when where which who why will with " +
      "would you your").split(" ")
  )

  const rewritten = typed => {
    if (/["^~*:]|(^|\s)[+-]/.test(typed)) return typed
    const words = typed.trim().split(/\s+/)
    const telling = words.filter(word => !FILLERS.has(word.toLowerCase().replace(/[^\w-]/g, "")))
    return (telling.length ? telling : words).map(word => word && `${word}^4 ${word}`).join(" ")
  }

  window.Worker = class extends window.Worker {
    postMessage(message, ...rest) {
      const asked = message && message.type === QUERY
      super.postMessage(asked ? { ...message, data: rewritten(message.data) } : message, ...rest)
    }
  }
}
