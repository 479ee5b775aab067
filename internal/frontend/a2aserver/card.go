package a2aserver

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/platform/httpserve"
)

// rpcPath is where calls go, below the address of a card.
const rpcPath = "/a2a"

const bearer = "bearer"

// card is what all cards have.
func (s *Server) card(at string) a2a.Card {
	return a2a.Card{
		Interfaces:   []a2a.Interface{{URL: s.base + at + rpcPath, Binding: a2a.JSONRPC, Version: a2a.Version}},
		Version:      s.cfg.Version,
		Capabilities: a2a.Capabilities{Streaming: true, Push: true, ExtendedCard: true},
		Schemes: map[string]a2a.SecurityScheme{
			bearer: {HTTP: &a2a.HTTPScheme{Scheme: "Bearer", Description: "the token of the server"}}},
		Requirements: []a2a.SecurityRequirement{{Schemes: map[string]a2a.Scopes{bearer: {}}}},
		InputModes:   []string{"text/plain", "application/json"},
		OutputModes:  []string{"text/plain"},
	}
}

// publicCard says how to authenticate, and nothing of the project.
func (s *Server) publicCard() a2a.Card {
	c := s.card("")
	c.Name, c.Description = "Drover", "An agent of a project. Its extended card tells more to whoever has the token."
	c.Skills = []a2a.Skill{{ID: "agent", Name: "Agent", Description: "Works on a task in the folder of a project.",
		Tags: []string{"agent"}}}
	return c
}

// agentCard is the card of one agent. Its name and description are of the project, so it needs the token.
func (s *Server) agentCard(w http.ResponseWriter, r *http.Request) {
	if s.locked(w, r) {
		return
	}
	c, err := s.extendedCard(r.Context(), r.PathValue("agent"))
	if err != nil {
		status := http.StatusInternalServerError
		var unknown *a2a.Error
		if errors.As(err, &unknown) {
			status = http.StatusNotFound
		}
		refuse(w, status, nil, asError(err))
		return
	}
	httpserve.JSON(w, http.StatusOK, c)
}

// extendedCard is the card of an agent. That of the usual one lists the others as skills, whose cards are at
// the address /agents/NAME.
func (s *Server) extendedCard(ctx context.Context, name string) (a2a.Card, error) {
	one, err := s.agent(ctx, name)
	if err != nil {
		return a2a.Card{}, err
	}
	c := s.card("/agents/" + url.PathEscape(name))
	c.Name, c.Description = one.Name, one.Description
	c.Skills = []a2a.Skill{skill(one, one.Description)}
	if name != s.cfg.Usual {
		return c, nil
	}
	all, err := s.cfg.Agents(ctx)
	if err != nil {
		return a2a.Card{}, err
	}
	for _, other := range all {
		if other.Name != name {
			c.Skills = append(c.Skills, skill(other, other.Description+"\nIts card is "+
				s.base+"/agents/"+url.PathEscape(other.Name)+a2a.CardPath))
		}
	}
	return c, nil
}

func skill(a Agent, description string) a2a.Skill {
	return a2a.Skill{ID: a.Name, Name: a.Name, Description: description, Tags: []string{"agent"}}
}
