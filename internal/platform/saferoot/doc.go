// Package saferoot opens what is below a folder that is trusted, and follows no link
// on the way there.
//
// The trusted folder itself is found as its path says, links and all. Below it
// every element must be what it is called: a folder that is swapped for a link, at
// whatever moment, is an error (ELOOP) and never leads out, nor to another place
// inside. [os.Root] promises less and asks more: it follows links that stay inside,
// also in the last place and whatever the flags say, and it opens each element.
//
// Where Linux has openat2 (since 5.6), to open something takes two system calls
// more than by its whole path: the trusted folder is opened and closed. Elsewhere
// every element is opened by itself. What the bytes mean, who may own a file and
// what kind of file it is, is not its business.
package saferoot
