// An MCP server that asks its user.
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';

const server = new McpServer({ name: 'forms', version: '1' });
const asks = (params) => async () => {
  const { action, content } = await server.server.elicitInput(params);
  return { content: [{ type: 'text', text: JSON.stringify({ action, content }) }] };
};
server.registerTool('ask', { description: 'asks for a name' }, asks({ message: 'Who are you?', requestedSchema: {
  type: 'object', required: ['name'],
  properties: { name: { type: 'string' }, team: { type: 'string', default: 'core' } },
} }));
server.registerTool('visit', { description: 'wants an address visited' },
  asks({ mode: 'url', message: 'Sign in', url: 'https://example.com/x', elicitationId: 'e1' }));
await server.connect(new StdioServerTransport());
