-- record, its writer's token, its content without the token, what the event has of it; answers the
-- greatest token seen: one greater than the writer's refuses it
local record, token, content = ARGV[4], ARGV[5], ARGV[6]
local key = prefix .. record
local held = redis.call('HMGET', key, 'fence', 'content')
if held[1] and tonumber(held[1]) > tonumber(token) then
  return held[1]
end
if held[2] == content then
  redis.call('HSET', key, 'fence', token)
  return token
end
local position = text(emit(record .. '_changed', '', ARGV[7], token))
redis.call('HSET', key, 'fence', token, 'token', token, 'content', content, 'position', position)
save()
return token
