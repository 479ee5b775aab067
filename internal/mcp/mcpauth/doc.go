// Package mcpauth signs in to MCP servers over HTTP by OAuth 2.1, and keeps the tokens.
//
// [Store.Login] has the user sign in with a browser: it finds the authorization server
// of an MCP server, registers this program there, and receives the answer on a loopback
// address. [Store.Token] gives the token of a server, refreshed when it has expired. The
// tokens are in one file that only its user can read, and that several processes share.
// The package promises that a token goes only to the server that it was issued for. It
// does not decide when a server needs a sign-in, and makes no MCP calls.
package mcpauth
