package main

import (
	"github.com/drover-dev/drover/internal/agentenv/settings"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/frontend/telemetry"
	"github.com/drover-dev/drover/internal/platform/home"
)

// observer exports what a session does, where the user wants that; else nil.
func (b *backend) observer(set settings.Settings) assemble.Observer {
	t := set.Telemetry
	x := telemetry.New(telemetry.Config{Mode: t.Mode, Endpoint: t.Endpoint, Content: t.Content, Env: home.Lookup(b.env),
		Version: b.version, Tell: b.note})
	if x == nil {
		return nil
	}
	return observer{x}
}

type observer struct{ *telemetry.Exporter }

func (o observer) Open(s *assemble.Session) { o.Exporter.Open(s) }
