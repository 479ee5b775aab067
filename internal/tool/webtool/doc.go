// Package webtool is the tool WebFetch, by which a model reads a page.
//
// A [Fetcher] asks by GET only, sends no credentials, and connects to no
// address of a private network or of this machine, whatever a name resolves to
// at that moment. It promises bounds for time, size and memory, work that is
// linear in the size of a page, and that the text of a page reaches the model
// marked as untrusted. It does not ask for permission and uses no proxy.
package webtool
