package builtin

import (
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/remote"
)

// UseRemote sets the driver of remote work, before any other method is called.
func (k *Kinds) UseRemote(d *remote.Driver) { k.remote = d }

// Remote is work of an agent elsewhere. env is the environment of a client, which may have tokens that the session does
// not have.
func (k *Kinds) Remote(r control.RemoteRequest, env []string) (Work, error) {
	d, job, err := k.remote.Job(r, env)
	return Work{Driver: d, Input: encode(job)}, err
}
