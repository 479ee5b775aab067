package settings

import "time"

// Memory is what is remembered from session to session.
type Memory struct {
	Enabled       string `json:"enabled,omitempty" jsonschema:"on (the default): new sessions begin with what is remembered of their folder; off"`
	Dream         string `json:"dream,omitempty" jsonschema:"off (the default), or auto: memory is consolidated by itself, which costs calls of a model"`
	Model         string `json:"model,omitempty" jsonschema:"model that consolidates: an alias or a name; haiku if not set and possible, else that of the session"`
	IdleAfter     string `json:"idleAfter,omitempty" jsonschema:"auto: how long a session must have been idle, such as 5m, which holds if not set"`
	Every         string `json:"every,omitempty" jsonschema:"auto: how long after the last consolidation, such as 24h, which holds if not set"`
	Sessions      int    `json:"sessions,omitempty" jsonschema:"auto: sessions that must have been at work since the last, 1 to 1000; 5 if not set"`
	ShutdownRun   bool   `json:"shutdownRun,omitempty" jsonschema:"a conversation that ends leaves an agent behind that brings what was learnt to the board"`
	ShutdownTurns int    `json:"shutdownTurns,omitempty" jsonschema:"prompts that such a conversation must have had, 1 to 1000; 3 if not set"`
}

// On reports whether new sessions are told what is remembered.
func (m Memory) On() bool { return m.Enabled != "off" }

// Auto reports whether memory is consolidated by itself.
func (m Memory) Auto() bool { return m.On() && m.Dream == "auto" }

// Idle is IdleAfter as a duration.
func (m Memory) Idle() time.Duration { return duration(m.IdleAfter, 5*time.Minute) }

// Period is Every as a duration.
func (m Memory) Period() time.Duration { return duration(m.Every, 24*time.Hour) }
