package main

func agentQuestions() cases { return nil }
func agentHooks() cases     { return nil }
func agentContext() cases   { return nil }
func agentTodos() cases     { return nil }
