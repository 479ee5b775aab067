// Package monitortool is the tool Monitor: it turns a call of the model into a
// monitor task in the background.
//
// A file must lie in the folders that the file tools may use. [Monitors] watches and
// reports events. The permission rules are checked before the call.
package monitortool
