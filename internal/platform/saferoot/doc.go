// Package saferoot opens files below a trusted folder, and follows no link on the way
// there.
//
// The path of the trusted folder itself may have links. Below it no element may be
// one: a folder that is swapped for a link, at whatever moment, is an error (ELOOP)
// and never leads out, nor to another place inside. [os.Root] promises less and costs
// more: it follows links that stay inside, also as the last element and whatever the
// flags say, and it opens each element.
//
// With openat2 (Linux since 5.6) an open takes two system calls more than by the
// whole path: the trusted folder is opened and closed. Elsewhere every element is
// opened by itself. The package checks neither the content of a file, nor its owner,
// nor its kind.
package saferoot
