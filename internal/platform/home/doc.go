// Package home says where things are kept: the state directory, the folders of
// projects and sessions in it, and the sockets.
//
// Its path methods are pure: they name a place and touch nothing. It promises
// that what it creates belongs to this user alone, that it refuses a place that
// somebody else could write to, and that no ID leads out of the state
// directory. What it has written or created survives a power cut. It does not know
// what stands in the files it names.
package home
