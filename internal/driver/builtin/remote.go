package builtin

import "github.com/drover-dev/drover/internal/driver/remote"

// UseRemote makes the driver of remote work. It is called once, before any other
// method is.
func (k *Kinds) UseRemote(c remote.Config) { k.remote = remote.New(c) }

// Remote is work in a session elsewhere, at a service that open finds.
func (k *Kinds) Remote(open func(service string) (remote.Service, error), j remote.Job) Work {
	return Work{Driver: k.remote.For(open), Input: encode(j)}
}
