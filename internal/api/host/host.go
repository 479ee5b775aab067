// Package host is the list of sessions ([Directory]), and the detached host of a project, which starts on demand and
// exits by itself.
//
// Clients that need a host at the same time get the same host. A session is live only if a process answers on its
// socket, which package socket has.
package host

import "time"

// Idle is how long a detached host outlives its last task.
const Idle = 60 * time.Second

// PromptIdle is the same for the host of one prompt. It is short: the answer can be read
// without a host, and continuing the session requires that the host has exited.
const PromptIdle = 500 * time.Millisecond
