return text(cursor)
