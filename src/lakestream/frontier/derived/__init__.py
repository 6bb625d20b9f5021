"""Tables derived from streams' tables: brought on, waited for, their dead files collected."""
