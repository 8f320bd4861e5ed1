-- A position, how many events at most. Answers whether the feed goes on from there; the position
-- before its first event, or the last one; the events. A position counts only if the feed has it:
-- one between two events is of writes that the server has lost.
local asked = ARGV[4]
local first = redis.call('XRANGE', feed, '-', '+', 'COUNT', 1)[1]
local oldest = first and first[2][2] or text(cursor)
if asked == text(cursor) then
  return { 1, text(cursor), {} }
end
local id = asked .. '-0'
if asked ~= oldest and #redis.call('XRANGE', feed, id, id) == 0 then
  return { 0, oldest, {} }
end
return { 1, text(cursor), redis.call('XRANGE', feed, '(' .. id, '+', 'COUNT', ARGV[5]) }
