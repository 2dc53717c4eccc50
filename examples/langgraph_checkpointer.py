"""A LangGraph chat that keeps its threads in a rath_bridge store: run it twice, and it goes on where it was.

``python examples/langgraph_checkpointer.py "Hello"``, then look: ``rath-bridge log langgraph/ann``.
"""

import sys

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from rath_langgraph import RathSaver

model = GenericFakeChatModel(messages=iter(["I am listening."]))  # any chat model of LangChain


def bot(state: MessagesState) -> MessagesState:
    return {"messages": [model.invoke(state["messages"])]}


graph = StateGraph(MessagesState).add_node("bot", bot).add_edge(START, "bot")
app = graph.compile(checkpointer=RathSaver())  # $RATH_BRIDGE_STORE, else sqlite:///.rath/store.db
said = HumanMessage(" ".join(sys.argv[1:]) or "Hello?")
state = app.invoke({"messages": [said]}, {"configurable": {"thread_id": "ann"}})
for message in state["messages"]:
    print(f"{message.type}: {message.content}")
