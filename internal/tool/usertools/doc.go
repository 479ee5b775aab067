// Package usertools are the tools by which a model speaks to the user who started
// it: AskUserQuestion puts questions to whoever is there, report_intent says what
// the model is about to do, and task_complete says that all of its work is done.
//
// It owns the words of these tools. It promises that a question is well formed
// before anybody sees it, and that a model whose question nobody answers is asked
// to decide by itself. It does not know who answers or who shows an intent, and it
// believes the model that its work is complete.
package usertools
